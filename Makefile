.DEFAULT_GOAL := help
export UV_PYTHON_DOWNLOADS := never
unexport PYTHONDONTWRITEBYTECODE
UV := .tools/bin/uv
BIN := .venv/bin
STAMP := .venv/.stamp

.PHONY: help setup run demo test test-model check format proto dist sbom pictures proofs bench chaos peers producers clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv

$(STAMP): $(UV) uv.lock pyproject.toml proto/pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
	$(UV) sync --locked --quiet --group node --group chart
	$(BIN)/python -m counterpoint.memory.embedding.files
	@touch $@

setup: $(STAMP) ## Install everything: the workspace, the engines, the embedding model

run: setup ## Start the engines and the five services; Ctrl-C stops them
	@$(BIN)/counterpoint up

demo: setup ## Play one real incident through five services, and check it
	@$(BIN)/counterpoint demo

test: setup ## The fast suite, on real engines
	$(BIN)/pytest -q -n auto --dist loadgroup --no-loadscope-reorder

test-model: setup ## The tests with a real small language model, which is installed first (1.1 GB)
	$(BIN)/counterpoint model install
	$(BIN)/pytest -q -m model

check: setup ## Formatting, lint, types, import rules, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contract/test_house.py tests/contract/test_code_shape.py tests/contract/test_sql_files.py
	$(BIN)/python -m counterpoint.proto.generate --check
	$(BIN)/python -m counterpoint.router.api.generate --check

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: setup ## Write what is generated: schemas, AsyncAPI, OpenAPI, the tables of workflow and errors, NATS permissions, the chart's part of the policy
	$(BIN)/python -m counterpoint.proto.generate
	$(BIN)/python -m counterpoint.router.api.generate
	$(BIN)/python docs/generate.py
	$(BIN)/python deploy/nats/generate.py
	$(BIN)/python deploy/chart/generate.py

dist: setup ## Build the wheels of an installation without a checkout into dist/
	$(BIN)/python deploy/dist.py dist

sbom: setup ## Write a bill of materials (CycloneDX) of each image from the lock into dist/sbom/
	$(BIN)/python deploy/sbom.py dist/sbom

pictures: setup ## Take pictures of the console for docs/pictures (needs Chromium; a few minutes)
	PYTHONPATH=tests $(BIN)/python docs/pictures.py

proofs: setup ## The proofs of the diode in full: 1,000,000 accesses, 16,000 updates, more seeds (minutes)
	$(BIN)/pytest -q -m slow -n auto --dist loadgroup

chaos: setup ## The long kill test: 1,000 tasks, 200 kills, five seeds (hours)
	$(BIN)/python tests/chaos/harness.py --tasks 1000 --kills 200 --seeds 5

bench: setup ## The benchmarks, ours beside the physical limit
	$(BIN)/counterpoint bench commit
	$(BIN)/counterpoint bench flow
	$(BIN)/counterpoint bench line
	$(BIN)/counterpoint bench memory

peers: setup ## mem0 and LangGraph's store on the same work, in an environment that is thrown away
	python3 -m venv .peers
	-.peers/bin/pip install --quiet --disable-pip-version-check -r libs/bench/counterpoint/bench/peers/packages.txt
	$(BIN)/python -m counterpoint.bench.peers.run .peers/bin/python; status=$$?; rm -rf .peers; exit $$status

producers: setup ## Real Airflow and dbt, one incident each, in environments that are thrown away (minutes)
	@rm -rf .producers && mkdir .producers
	@for name in airflow dbt; do python3 -m venv .producers/$$name && .producers/$$name/bin/pip install --quiet \
		--disable-pip-version-check -r tests/producers/$$name.txt > .producers/$$name.log 2>&1 || true; done
	@$(BIN)/python tests/producers/run.py .producers; status=$$?; rm -rf .producers; exit $$status

clean: ## Forget what was installed
	rm -rf .venv .tools
