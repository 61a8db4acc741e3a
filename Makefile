# Works from a bare clone; needs only make and python3 (3.11 or newer). The first target that needs it creates .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make bench` takes all of them, on one thread. QUICK=1: a part of their rows. THREADS=2: those where everyone may use two,
# for a machine with nothing else to do. OUT=results/bench renews the committed results.
BENCHMARKS := epochs layers quadratic labelling growth training $(if $(QUICK),,knapsacks facilities small_lps solvers paper_times)
OUT ?= build/bench
ifdef THREADS
BENCHMARKS := epochs layers
SUFFIX := _$(THREADS)_threads
endif

# One thread per worker: numba, torch and BLAS would otherwise start one per core in each of the two.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Where the repository is, `https://…`: the one place that names it. Without it, the site and the package link to no source.
export DFLEARN_REPOSITORY ?=
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu check bench docs docs-serve notebooks wheel release-check peers fuzz mutate clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.installed-plot  ## train on a small shortest-path problem and show the gain
	$(BIN)/dfl demo

# mypy has one thread, so the tests begin meanwhile.
test: $(VENV)/.installed-test  ## ruff, mypy and every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadgroup; tests=$$?; wait $$types && exit $$tests

# Where torch sees a GPU: PYTHON names the environment that holds it. MEMCHECK=1: memory and races too, by compute-sanitizer.
test-gpu:  ## the tests that need a GPU (PYTHON=python3, MEMCHECK=)
	PYTHONPATH=src:. $(PYTHON) -m pytest -q -m gpu tests/cuda
ifdef MEMCHECK
	PYTHONPATH=src:. compute-sanitizer --error-exitcode 1 --tool memcheck $(PYTHON) benchmarks/speed/gpu.py --small
	PYTHONPATH=src:. compute-sanitizer --error-exitcode 1 --tool racecheck $(PYTHON) benchmarks/speed/gpu.py --small
endif

check: $(VENV)/.installed-test  ## ruff, mypy and the tests of what you changed (BASE=main: since that commit)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist loadgroup -q $$($(BIN)/python tests/support/touched.py $(or $(BASE),HEAD))

# Passive: OpenMP threads that wait for torch's next operation would spin on the cores that kernels' threads need.
bench: $(VENV)/.installed-bench peers  ## time dflearn and its peers side by side (QUICK=1: a part of it)
	set -e; for name in $(BENCHMARKS); do \
		$(ONE_THREAD) OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/speed/$$name.py \
			$(if $(QUICK),--quick) $(if $(THREADS),--threads $(THREADS)) --json $(OUT)/$${name}$(SUFFIX).json; \
	done
	$(BIN)/python benchmarks/speed/plots.py $(OUT)
	$(BIN)/python benchmarks/speed/targets.py $(OUT)

docs: $(VENV)/.installed-docs build/mermaid/.unpacked  ## the site, in build/site; a warning is an error
	$(BIN)/python benchmarks/pages/site_pages.py
	$(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.installed-docs build/mermaid/.unpacked  ## the site at http://127.0.0.1:8000, built again when a page changes
	$(BIN)/python benchmarks/pages/site_pages.py
	$(BIN)/mkdocs serve --no-strict

notebooks: $(VENV)/.installed-test  ## docs/notebooks/*.ipynb from the Python files beside them
	$(BIN)/python benchmarks/pages/notebooks.py

# Diagrams are drawn by mermaid, as a package of the registry carries it, so that a page fetches nothing when it is viewed.
build/mermaid/.unpacked: constraints.txt $(VENV)/.installed-docs
	rm -rf build/mermaid && mkdir -p build/mermaid
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -c constraints.txt -d build/mermaid nicegui
	$(BIN)/python -m zipfile -e build/mermaid/nicegui-*.whl build/mermaid
	@touch $@

# The package is built from a copy, so that the checkout goes on compiling for its own processor, with a README whose links work elsewhere.
build/package: $(VENV)/.installed-release FORCE
	rm -rf $@ && mkdir -p $@
	cp -r pyproject.toml README.md LICENSE src $@
	find $@ -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $@/src/dflearn/engine/compiled $@/src/*.egg-info
	$(BIN)/python benchmarks/pages/package_readme.py $@/README.md

FORCE:

# The kernels in it are of this Python and of x86-64 Linux, and so is its tag. Other Pythons: make wheel PYTHON=python3.12 VENV=.venv-3.12.
# With another numba than that of constraints.txt it works too and compiles at the first call.
wheel: build/package  ## a wheel that carries the compiled kernels, in dist/: no first call waits (three minutes)
	$(ONE_THREAD) PYTHONPATH=build/package/src $(BIN)/python -m dflearn compile --all
	rm -rf build/wheel && $(BIN)/python -m build --no-isolation --wheel --outdir build/wheel build/package
	$(BIN)/python -m wheel tags --remove --abi-tag none --platform-tag manylinux_2_17_x86_64 \
		--python-tag cp$$($(BIN)/python -c 'import sys; print(*sys.version_info[:2], sep="")') build/wheel/*.whl
	mkdir -p dist && mv build/wheel/*.whl dist

release-check: docs build/package  ## links, build, metadata and README, install in a clean environment, run the demo (ten minutes)
	rm -rf build/release
	$(BIN)/python -m build --no-isolation --outdir build/release build/package
	$(BIN)/twine check --strict build/release/*
	$(PYTHON) -m venv build/release/clean
	build/release/clean/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(echo build/release/*.whl)[plot]"
	cd build/release && PYTHONPATH= clean/bin/dfl --version && PYTHONPATH= clean/bin/dfl demo

peers: .venv-ortools/.installed .venv-qpth/.installed .venv-moreau/.installed .venv-mpax/.installed  ## set up the peers that need environments of their own

.venv-%/.installed: benchmarks/speed/environments/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# COUNT programs from SEED on, of FAMILIES (names with commas; all by default).
fuzz: $(VENV)/.installed-test  ## random programs in any units, every answer judged (COUNT=1000 SEED=0 FAMILIES=)
	$(ONE_THREAD) $(BIN)/python -m fuzz --count $(or $(COUNT),1000) --seed $(or $(SEED),0) \
		--families '$(FAMILIES)' --out $(if $(filter file,$(origin OUT)),results/fuzz,$(OUT))

# COUNT mutants drawn by SEED; what is done is not run again. AGAIN=1: survivors once more, after tests were added.
mutate: $(VENV)/.mutation  ## change operators of the source by chance: do the tests notice? (COUNT=400 SEED=14 AGAIN=)
	$(ONE_THREAD) PYTHONPATH=src:. $(BIN)/python benchmarks/mutation/run.py --count $(or $(COUNT),400) --seed $(or $(SEED),14) \
		$(if $(AGAIN),--again) --out $(if $(filter file,$(origin OUT)),results/mutation,$(OUT))

$(VENV)/.mutation: benchmarks/mutation/requirements.txt $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $<
	@touch $@

clean:  ## remove the environment, builds and caches
	rm -rf $(VENV) .venv-ortools .venv-qpth .venv-moreau .venv-mpax build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# An extra is installed once, and again when what it depends on changes.
$(VENV)/.installed-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@
