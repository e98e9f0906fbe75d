// Sections that open: by a link to them, all at once, and for printing.
"use strict";
(() => {
  const sections = [...document.querySelectorAll("main > details")];
  const button = document.createElement("button");
  button.type = "button";
  button.className = "all";
  document.querySelector("nav").append(button);

  const label = () => { button.textContent = sections.every(({ open }) => open) ? "Close all" : "Open all"; };

  // Open the target of the link and everything around it; it may be a table or figure in a closed section.
  function openTarget() {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let place = target; place; place = place.parentElement) if (place.localName === "details") place.open = true;
    target.scrollIntoView();
  }

  button.addEventListener("click", () => {
    const open = !sections.every((section) => section.open);
    for (const section of sections) section.open = open;
  });
  for (const section of sections) section.addEventListener("toggle", label);
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    link.addEventListener("click", () => setTimeout(openTarget)); // also if the address is already this one
  }
  window.addEventListener("hashchange", openTarget);

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const section of closed) section.open = true;
  });
  window.addEventListener("afterprint", () => { for (const section of closed) section.open = false; });

  label();
  openTarget();
})();
