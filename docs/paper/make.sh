#!/bin/sh
# A paper of two pages whose tables and figures come from the committed runs: tables and figures -> paper.pdf.
# Run it in the clone, after `. .venv/bin/activate`. Needs latexmk (Debian: apt install latexmk
# texlive-latex-recommended). Usage: docs/paper/make.sh [OUTPUT_FOLDER]
set -e
out=${1:-data/paper}
runs=results/cls-books/runs.tar.xz
study=docs/paper/study.toml
mkdir -p "$out"
roberta-small tables $runs --table seeds --study $study --format latex > "$out/seeds.tex"
roberta-small compare $runs --study $study --table comparison --format latex > "$out/comparison.tex"
roberta-small figures $runs --study $study --figure-format pdf --out "$out"
cp docs/paper/paper.tex "$out"
cd "$out"
latexmk -pdf -interaction=nonstopmode -halt-on-error paper.tex > latexmk.txt || { tail -n 40 latexmk.txt; exit 1; }
echo "$out/paper.pdf"
