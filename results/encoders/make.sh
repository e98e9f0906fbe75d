#!/bin/sh
# From the tables of make_data.py to the archives beside this script; see README.md. Tables that have an archive
# are skipped, and an interrupted training resumes with the same command. Run it in the clone, after
# `. .venv/bin/activate`:
#
#     results/encoders/make.sh books-1800 books-200 ...
set -e
export OMP_NUM_THREADS=1
french="--tokenizer data/xlmr/sentencepiece.bpe.model --dict pretrained/roberta_small_fr/dict.txt"
weights="v2=pretrained/roberta_small_fr/model.safetensors v3=pretrained/roberta_small_fr_v3/model.safetensors"
for set; do
    archive=results/encoders/$set.tar.xz
    [ ! -e "$archive" ] || continue
    case $set in
        books-1800) small=${weights#* } tokenizer=$french ;; # the others are in results/cls-books
        books-* | allocine-*) small="random $weights" tokenizer=$french ;;
        *) small=random tokenizer= ;;
    esac
    # Large encoders: batches of 16 texts. With few labels, runs are evaluated once, at their end. All of these runs
    # start from a random head; the runs of few.tar.xz (below) have `once` without --head dense, which is the default.
    once="-- --head dense --validate-interval 1000 --save-interval 1000"
    case $set in
        *-1800) large="--batch-size 16 --epochs 4" once="-- --head dense" ;;
        *-200) large="--batch-size 16 --epochs 10" ;;
        *-50) large="--batch-size 16 --epochs 20" ;;
    esac
    train="roberta-small train --data data/$set.csv --split-column split --out runs/$set --jobs ${JOBS:-2}"
    # shellcheck disable=SC2086 # words
    {
        $train --inits $small $tokenizer --seeds 1 2 3 4 5 $once
        case $set in books-200) $train --inits "${weights#* }" $tokenizer --seeds 1 2 3 4 5 --no-baselines --grid lr=3e-5 $once ;; esac
        $train --inits e5=data/checkpoints/e5 --seeds 1 2 3 --no-baselines $large $once
        case $set in
            books-1800) $train --inits e5=data/checkpoints/e5 --seeds 1 2 3 --no-baselines $large --grid max-positions=512 ;;
            books-200 | packages-200 | packages-50) $train --inits e5=data/checkpoints/e5 --seeds 1 2 3 --no-baselines --arm own-data $once ;;
        esac
        case $set in books-200) # soft labels of encoders that were fine-tuned with the same 200 labels
            $train --inits e5=data/checkpoints/e5 --seeds 1 2 3 --no-baselines --arm own-data --grid max-positions=512 $once
            roberta-small predict --checkpoint "runs/$set/own-data,max-positions=512/e5" --ensemble --input data/span-lines.txt --with-text --out data/soft-200.jsonl
            $train --inits "${weights#* }" $tokenizer --seeds 1 2 3 4 5 --no-baselines --arm soft --soft-labels data/soft-200.jsonl --lr 1e-4 --batch-size 16 --epochs 1
            $train --inits e5=data/checkpoints/e5 --seeds 1 2 3 --no-baselines --arm soft --soft-labels data/soft-200.jsonl --batch-size 16 --epochs 1 ;;
        esac
        case $set in movies-* | packages-*)
            $train --inits minilm=data/checkpoints/minilm --seeds 1 2 3 4 5 --no-baselines $large $once ;;
        esac
    }
    roberta-small collect "runs/$set" --out "$archive"
done
