# Foredraft. `make demo` and `make test` do all their own set-up; `make help` lists the rest.

PYTHON  ?= python3
VENV    ?= .venv
MODEL   ?= smollm2-135m
# Who runs it: onnxruntime (CPU), tensorrt-rtx or tensorrt (NVIDIA; TARGETS=sm89,sm120)
BACKEND ?= onnxruntime
THREADS ?= $(shell nproc 2>/dev/null || echo 1)
# The reference that exported models are compared with (tests, `foredraft check`). A CPU build is enough.
TORCH   ?= torch==2.13.0

BIN     := $(VENV)/bin
CPU     := $(filter onnxruntime,$(BACKEND))
BUNDLE  := bundles/$(MODEL)$(if $(CPU),,-$(BACKEND)).foredraft
STDLIB  := $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
SOURCES := pyproject.toml setup.py $(shell find plugins -name '*.cc' -o -name '*.h' -o -name '*.inc')

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev export demo test test-fast bench bench-exact bench-peers check-gpu lint clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.installed  ## a virtual environment with Foredraft and its exporter

setup-dev: $(VENV)/.installed-dev  ## the same with tests, linters and the torch reference

$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[export]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -q '$(TORCH)'
	$(BIN)/python -m pip install -q -e '.[export,reference,fit,dev]'
	touch $@

$(VENV)/.installed-$(BACKEND): $(VENV)/.installed
	$(BIN)/python -m pip install -q -e '.[$(BACKEND),build-engines]'
	touch $@

export: $(BUNDLE)/manifest.json  ## MODEL=name or path [BACKEND=tensorrt-rtx]: checkpoint -> bundles/MODEL.foredraft

$(BUNDLE)/manifest.json: | setup $(if $(CPU),,$(VENV)/.installed-$(BACKEND))
	$(BIN)/foredraft export $(MODEL) --out $(BUNDLE) $(if $(CPU),,--backend $(BACKEND) $(if $(TARGETS),--targets $(TARGETS)))

demo: bundles/$(MODEL)-corpus.fdb bundles/$(MODEL)-model.fdb  ## export SmolLM2, write with and without drafting, compare (DEMO_JSON=out.json)
	$(BIN)/foredraft bench $(BUNDLE) --questions benchmarks/demo.jsonl --drafters none,prompt-lookup,context,blend \
	  --db bundles/$(MODEL)-corpus.fdb --db bundles/$(MODEL)-model.fdb \
	  --max-tokens 128 --threads $(THREADS) --show-text $(if $(DEMO_JSON),--json $(DEMO_JSON))

# A corpus that every machine has: the sources and documentation strings of Python's standard library.
bundles/$(MODEL)-corpus.fdb: | export
	@echo "$(BIN)/foredraft db build $@ --tokenizer $(BUNDLE) $(STDLIB)/*.py ..."
	@$(BIN)/foredraft db build $@ --tokenizer $(BUNDLE) $(wildcard $(STDLIB)/*.py $(STDLIB)/json $(STDLIB)/email $(STDLIB)/http)

# What this model wrote before, to other prompts than the demo's.
bundles/$(MODEL)-model.fdb: | export
	$(BIN)/foredraft db build $@ --generate $(BUNDLE) --prompts benchmarks/model_prompts.jsonl

test: setup-dev  ## all tests; installs what they need of the system where it may (root, apt-get)
	$(PYTHON) tests/programs.py
	$(BIN)/python -m pytest

test-fast: setup-dev  ## what to run after every edit: all tests that take no seconds, in two processes
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

bench: setup-dev export  ## speed tables: decoding, t(T)/t(1), session opening
	$(BIN)/python benchmarks/speed.py $(BUNDLE)

bench-exact: setup-dev export  ## every question, every drafter, several temperatures: equal token ids
	$(BIN)/python benchmarks/exact.py $(BUNDLE)

bench-peers: setup-dev export  ## the same model in llama.cpp and onnxruntime-genai (builds llama.cpp: 10 minutes)
	$(BIN)/python -m pip install -q llama-cpp-python onnxruntime-genai
	$(BIN)/python benchmarks/peers.py $(BUNDLE)

check-gpu: setup-dev  ## what only an NVIDIA GPU can show: load, numerics, speed (without one: says what was not run)
	$(BIN)/python -m benchmarks.gpu.check_gpu

lint: setup-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove the environment, builds and bundles
	rm -rf $(VENV) build bundles *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} + ; find plugins -name '*.so' -delete
