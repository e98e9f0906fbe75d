// Curves of all runs: choose a metric, switch runs on and off, read values at an epoch.
// Everything that comes from the data goes into the page as text or as a number, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("chart");
  const WIDTH = { left: 48, right: 12 }, HEIGHT = 300, TOP = 28, BOTTOM = 40;
  const COLORS = 10; // of report.css; lines differ by their dashes as well
  const DASHES = ["", "7 4", "9 3 2 3", "2 3", "12 3 5 3", "4 2", "9 3 2 3 2 3"];
  const MOST_ROWS = 16; // more visible runs than this, and only means are listed
  const state = {
    metric: data.metrics[0].name,
    subsets: new Set(data.subsets.filter((name) => name !== "train")),
    hidden: new Set(),
    epoch: Math.max(...data.runs.flatMap((run) => allPoints(run).map(([epoch]) => epoch))),
  };

  function allPoints(run) {
    return Object.values(run.curves).flatMap((subsets) => Object.values(subsets).flat());
  }

  function html(name, attributes = {}, ...children) {
    return fill(document.createElement(name), attributes, children);
  }

  function svg(name, attributes = {}, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }

  function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key === "checked") element.checked = value;
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  const metric = () => data.metrics.find(({ name }) => name === state.metric);
  const shown = (value) => (value === null ? "–" : value.toFixed(metric().digits));
  const visible = (group) => data.runs.filter((run) => run.group === group && !state.hidden.has(run.name));
  const points = (run, subset) => (run.curves[state.metric] || {})[subset] || [];
  const at = (run, subset, epoch) => (points(run, subset).find(([x]) => x === epoch) || [0, null])[1];
  const color = (index) => `var(--c${index % COLORS})`;
  const dashes = (index) => DASHES[(index + Math.floor(index / COLORS)) % DASHES.length];

  // Mean over the visible runs that have a value at the epoch.
  function means(group, subset) {
    const byEpoch = new Map();
    for (const run of visible(group)) {
      for (const [epoch, value] of points(run, subset)) {
        if (value !== null) byEpoch.set(epoch, [...(byEpoch.get(epoch) || []), value]);
      }
    }
    return [...byEpoch].sort(([a], [b]) => a - b)
      .map(([epoch, values]) => [epoch, values.reduce((a, b) => a + b, 0) / values.length]);
  }

  // Round numbers, at most `most` of them, that cover low to high.
  function ticks(low, high, most) {
    const rough = (high - low || 1) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, index) => (first + index) * step);
  }

  function path(line, x, y) {
    let pen = "M"; // a gap in the values is a gap in the line
    return line.map(([epoch, value]) => {
      const command = value === null ? "" : `${pen}${x(epoch).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = value === null ? "M" : "L";
      return command;
    }).join("");
  }

  function panel(subset, range, width) {
    const [firstEpoch, lastEpoch, low, high] = range;
    const x = (epoch) => WIDTH.left + (width - WIDTH.left - WIDTH.right) *
      (lastEpoch > firstEpoch ? (epoch - firstEpoch) / (lastEpoch - firstEpoch) : 0.5);
    const y = (value) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img",
      "aria-label": `${metric().label} on ${subset} after each epoch` });
    picture.append(svg("text", { x: WIDTH.left, y: 16, class: "title" }, `${metric().label} on ${subset}`));
    for (const value of ticks(low, high, 5)) {
      picture.append(svg("line", { x1: WIDTH.left, x2: width - WIDTH.right, y1: y(value), y2: y(value), class: "grid" }));
      picture.append(svg("text", { x: WIDTH.left - 6, y: y(value) + 4, "text-anchor": "end" }, `${+value.toPrecision(6)}`));
    }
    for (const epoch of ticks(firstEpoch, lastEpoch, 8).filter(Number.isInteger)) {
      picture.append(svg("text", { x: x(epoch), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, `${epoch}`));
    }
    picture.append(svg("text", { x: (WIDTH.left + width - WIDTH.right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "epoch"));
    picture.append(svg("line", { x1: x(state.epoch), x2: x(state.epoch), y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor" }));
    data.groups.forEach((group) => {
      const index = data.styles[group];
      const style = { stroke: color(index), "stroke-dasharray": dashes(index) };
      const lines = [...visible(group).map((run) => [points(run, subset), "run"]), [means(group, subset), "mean"]];
      for (const [line, kind] of lines) {
        picture.append(svg("path", { d: path(line, x, y), class: kind, ...style }));
      }
      for (const [epoch, value] of means(group, subset)) {
        picture.append(svg("circle", { cx: x(epoch), cy: y(value), r: epoch === state.epoch ? 5 : 3, fill: color(index) }));
      }
    });
    const choose = (event) => {
      const inside = picture.getBoundingClientRect();
      const place = (event.clientX - inside.left) * width / inside.width;
      const all = new Set(data.runs.flatMap((run) => points(run, subset).map(([epoch]) => epoch)));
      const nearest = [...all].sort((a, b) => Math.abs(x(a) - place) - Math.abs(x(b) - place))[0];
      if (nearest !== undefined && nearest !== state.epoch) { state.epoch = nearest; draw(); }
    };
    picture.addEventListener("pointermove", choose);
    picture.addEventListener("pointerdown", choose);
    return picture;
  }

  function rangeOf(subsets) {
    const all = data.runs.filter((run) => !state.hidden.has(run.name))
      .flatMap((run) => subsets.flatMap((subset) => points(run, subset))).filter(([, value]) => value !== null);
    const epochs = all.map(([epoch]) => epoch), values = all.map(([, value]) => value);
    if (!all.length) return null;
    const low = Math.min(...values), high = Math.max(...values), room = 0.05 * (high - low || Math.abs(high) || 1);
    return [Math.min(...epochs), Math.max(...epochs), low - room, high + room];
  }

  function readout(subsets) {
    const cells = (name, values, kind) => html("tr", { class: kind },
      html("th", { class: "left", scope: "row" }, name), ...values.map((value) => html("td", {}, shown(value))));
    const rows = [];
    const few = data.runs.filter((run) => !state.hidden.has(run.name)).length <= MOST_ROWS;
    for (const group of data.groups) {
      const runs = visible(group);
      if (!runs.length) continue;
      if (few) rows.push(...runs.map((run) => cells(run.name, subsets.map((subset) => at(run, subset, state.epoch)), "")));
      const mean = (subset) => (means(group, subset).find(([epoch]) => epoch === state.epoch) || [0, null])[1];
      rows.push(cells(`${data.labels[group]}, mean of ${runs.length} shown`, subsets.map(mean), "sum"));
    }
    return html("div", { class: "wide readout" }, html("table", {},
      html("thead", {}, html("tr", {}, html("th", { class: "left", scope: "col" }, `epoch ${state.epoch}`),
        ...subsets.map((subset) => html("th", { scope: "col" }, subset)))),
      html("tbody", {}, ...rows)));
  }

  const plots = html("div", { class: "panels" }), values = html("div");
  function draw() {
    const subsets = data.subsets.filter((name) => state.subsets.has(name));
    const range = rangeOf(subsets);
    if (!range) {
      plots.replaceChildren(html("p", {}, "Nothing to draw: no run is shown, or none has this metric."));
      values.replaceChildren();
      return;
    }
    const boxes = subsets.map(() => html("div", { class: "panel" }));
    if (plots.childElementCount !== boxes.length || !plots.querySelector(".panel")) plots.replaceChildren(...boxes);
    subsets.forEach((subset, index) => {
      const box = plots.children[index];
      box.replaceChildren(panel(subset, range, Math.max(240, box.clientWidth)));
    });
    values.replaceChildren(readout(subsets));
  }

  function toggle(set, name, on) {
    if (on) set.add(name); else set.delete(name);
  }

  function controls() {
    const select = html("select", { onchange: (event) => { state.metric = event.target.value; draw(); } },
      ...data.metrics.map(({ name, label }) => html("option", { value: name }, label)));
    const boxes = data.subsets.map((name) => html("label", {}, html("input", { type: "checkbox",
      checked: state.subsets.has(name),
      onchange: (event) => { toggle(state.subsets, name, event.target.checked); draw(); } }), name));
    return html("div", { class: "controls" }, html("label", {}, "metric ", select), ...boxes);
  }

  function groupRow(group) {
    const index = data.styles[group];
    const runs = data.runs.filter((run) => run.group === group);
    const key = svg("svg", { class: "key", viewBox: "0 0 36 12", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 36, y1: 6, y2: 6,
      stroke: color(index), "stroke-width": 3, "stroke-dasharray": dashes(index) }));
    const all = html("input", { type: "checkbox", checked: true });
    const buttons = runs.map((run) => html("button", { type: "button", "aria-pressed": "true" }, `seed ${run.seed}`));
    const refresh = () => {
      buttons.forEach((button, at) => button.setAttribute("aria-pressed", `${!state.hidden.has(runs[at].name)}`));
      all.checked = runs.every((run) => !state.hidden.has(run.name));
      draw();
    };
    buttons.forEach((button, at) => button.addEventListener("click", () => {
      toggle(state.hidden, runs[at].name, !state.hidden.has(runs[at].name));
      refresh();
    }));
    all.addEventListener("change", () => {
      for (const run of runs) toggle(state.hidden, run.name, !all.checked);
      refresh();
    });
    return html("div", { class: "group" }, html("label", {}, all, key, data.labels[group]), ...buttons);
  }

  root.append(controls(), ...data.groups.map((group) => groupRow(group)), plots, values);
  draw();
  window.addEventListener("resize", draw);
  root.closest("details").addEventListener("toggle", draw); // a closed section has no width
})();
