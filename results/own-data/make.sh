#!/bin/sh
# From the three files in data/ to the folders beside this script; see README.md. An interrupted training
# resumes with the same command. Run it in the clone, after `. .venv/bin/activate`.
set -e
export OMP_NUM_THREADS=1
roberta-small prepare data/allocine.tsv --test 0.3 --out data/allocine \
    --tokenizer data/xlmr/sentencepiece.bpe.model --dict pretrained/roberta_small_fr/dict.txt
roberta-small prepare data/movies.tsv --test 0.3 --out data/movies
roberta-small prepare data/packages.csv --text-column description --label-column section --test 0.3 \
    --out data/packages
for name in allocine movies packages; do
    case $name in allocine) inits="pretrained random" chance=50 ;; movies) inits=random chance=50 ;;
        packages) inits=random chance=5 ;; esac
    # shellcheck disable=SC2086 # several initializations
    roberta-small train --data data/$name --inits $inits --seeds 1 2 3 --grid lr=1e-5,1e-4 --jobs 2 --out runs/$name
    roberta-small train --method tfidf --no-sublinear --text data/$name/text --out runs/$name
    roberta-small evaluate --checkpoint runs/$name --write-predictions
    out=results/own-data/$name
    roberta-small collect runs/$name --out $out/runs.tar.xz
    cp data/$name/audit.json $out/
    roberta-small tables $out/runs.tar.xz --out $out
    roberta-small tables $out/runs.tar.xz --table best-settings --out $out
    roberta-small figures $out/runs.tar.xz --figure best-settings --out $out --chance $chance
    roberta-small tables $out/runs.tar.xz --table best-settings --metric macro_f1 --by accuracy --out $out/macro_f1
    roberta-small figures $out/runs.tar.xz --figure best-settings --metric macro_f1 --by accuracy --out $out/macro_f1
    roberta-small figures $out/runs.tar.xz --out $out --chance $chance
    roberta-small report $out/runs.tar.xz --title $name --audit $out/audit.json --chance $chance --out $out/report.html
    roberta-small evaluate --checkpoint $out/runs.tar.xz --from-predictions --audit $out/audit.json \
        --out $out/evaluation.json > $out/evaluation.md
done
