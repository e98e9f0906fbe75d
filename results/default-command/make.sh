#!/bin/sh
# The default command on tables of users; see README.md. An interrupted training resumes with the same command. Run it in
# the clone, after `. .venv/bin/activate`.
set -e
export OMP_NUM_THREADS=1
for table in sample-1800.csv products.tsv movies.tsv genres.csv packages.csv allocine.tsv books-1800.csv; do
    name=${table%%[-.]*}
    archive=results/default-command/$name.tar.xz
    [ ! -e "$archive" ] || continue
    case $table in
        *-1800.csv) options="--split-column split" ;;
        packages.csv) options="--label-column section" ;;
        *) options= ;;
    esac
    # shellcheck disable=SC2086 # words
    roberta-small train --data "data/$table" $options --seeds 1 2 3 --jobs "${JOBS:-2}" --out "runs/default/$name"
    roberta-small collect "runs/default/$name" --out "$archive"
done
