# make help lists the targets. Settings: PYTHON=python3.12, TORCH=torch==2.13.0 or an index's URL.

PYTHON ?=
TORCH  ?=
VENV   := .venv
BIN    := $(VENV)/bin
# PYTHON and TORCH apply to the installation only: what the targets start uses .venv.
unexport PYTHON TORCH

# One process per core; the tests of a file stay in one process, so that fixtures are set up once.
PARALLEL := --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations 10

# Tests with generated inputs: make test tries 10 of each.
GENERATED := $(addprefix tests/, fairseq_plugin/models/test_generated_sizes.py fairseq_plugin/tasks/test_pairs.py \
	preprocess/readers/test_generated_tables.py preprocess/readers/test_generated_workbooks.py analysis/read/test_sessions.py \
	preprocess/tokenization/test_transformers_encoder.py test_five_ways.py export/test_configurations.py)

SAMPLE      := data/sample
SAMPLE_RUNS := data/sample/runs

.DELETE_ON_ERROR:
.PHONY: help install sweep test test-cuda test-slurm test-faults test-checkpoints test-fairseq test-long test-systems lint bench gpu-kit update-constraints

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/installed  ## create .venv and install everything (the other targets do so when needed)

$(VENV)/installed: pyproject.toml setup.py constraints.txt
	@PYTHON='$(PYTHON)' TORCH='$(TORCH)' installation/install.sh
	@touch $@

sweep: $(VENV)/installed  ## pre-train, fine-tune and compare on generated data: six runs, two tables, a figure
	roberta_small/experiments/sample.sh $(SAMPLE) $(SAMPLE_RUNS)

test: $(VENV)/installed  ## all tests except those of the other targets
	CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not cuda and not slurm and not faults and not fairseq and not long and not checkpoints" $(PARALLEL)

test-cuda: $(VENV)/installed  ## the tests that need a GPU
	$(BIN)/python -m pytest -m cuda

test-slurm: $(VENV)/installed  ## the SLURM launcher on a real two-node SLURM started by the tests (root; Debian: slurm-wlm munge)
	@for name in munged slurmctld slurmd sbatch; do \
		PATH="$$PATH:/usr/sbin" command -v $$name >/dev/null || \
		{ echo "error: no $$name on this machine; on Debian: apt install slurm-wlm munge"; exit 1; }; done
	RS_EVIDENCE=results/faults/slurm.json $(BIN)/python -m pytest -m slurm

test-faults: $(VENV)/installed  ## fault injection: kill -9, corrupt files, full disks, hostile names; generated inputs (half an hour; root)
	RS_EVIDENCE=results/faults/faults.json OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults tests/faults
	RS_GENERATED=$${RS_GENERATED:-500} OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto $(GENERATED)

test-checkpoints: $(VENV)/installed  ## real checkpoints of others, there and back (10 minutes; a package index, 0.8 GB in data/checkpoints)
	CUDA_VISIBLE_DEVICES= RS_EVIDENCE=results/faults/checkpoints.json $(BIN)/python -m pytest -m checkpoints tests/checkpoints

test-fairseq: $(VENV)/installed  ## fairseq's own tests, without and with the plugin (10 minutes; a package index)
	$(BIN)/python -m pytest -m fairseq

test-long: $(VENV)/installed  ## the commands of the documentation and the notebook, and the longest tests (20 minutes)
	CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long $(PARALLEL)

test-systems:  ## the README's commands in clean Debian 12, 13, unstable and Ubuntu 24.04 (root; debootstrap; two hours, 33 GB in data/systems)
	python3 tests/systems/clean_systems.py $(ARGS)

lint: $(VENV)/installed  ## ruff (rules and format) and mypy (types)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

SHORT := floor finetune masked-lm classify --quick --rounds 1 --updates 30
bench: $(VENV)/installed  ## speed compared with stock fairseq and Transformers (an hour on an idle machine, QUICK=1: five minutes; ARGS="finetune --help")
	$(BIN)/python -m benchmarks $(if $(QUICK),$(SHORT)) $(ARGS)

gpu-kit:  ## wheels for checks on a machine with a GPU and no network: then benchmarks/gpu/check.sh there (PYTHON: its version)
	PYTHON='$(PYTHON)' benchmarks/gpu/prepare.sh

update-constraints: $(VENV)/installed  ## the newest versions that pyproject.toml allows into constraints.txt (a package index)
	$(BIN)/python installation/constraints.py
