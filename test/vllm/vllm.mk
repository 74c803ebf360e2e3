# Tests that need vLLM: it is installed for a CPU in an environment of its own.
# Other targets do without; `make test` runs the fast ones when it is there.

VLLM     := $(BUILD)/vllm
# Bytecode is kept, whatever the environment says: importing vLLM takes longer than many tests without.
VLLM_KEEP := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(ROOT)/$(VLLM)/pycache
VLLM_RUN  = cd test/vllm && $(VLLM_KEEP) $(ROOT)/$(VLLM)/bin/python -m pytest -q -rs -o cache_dir=$(ROOT)/$(BUILD)/test/vllm-cache -W ignore::pytest.PytestDeprecationWarning

# From pytest's words to those of make test; a failure stays one.
VLLM_REPORT := sed -uE -e 's/^SKIPPED \[[0-9]+\] /skip: /' -e 's/^([0-9]+) passed(.*) in .*/part passed: \1 tests\2/'

# What the Python tests leave out where torch is not installed; vLLM's environment has it.
TORCH_TESTS := $(addprefix ../../python/tests/,test_torch.py test_tensors.py test_adopt.py)

.PHONY: deps-vllm vllm-venv test-torch test-vllm test-vllm-full test-vllm-again test-vllm-fast test-vllm-soak vllm-sources

vllm-venv:
	@PYTHON=$(PYTHON) test/vllm/install/install.sh $(VLLM)

# What needs it installs it.
$(VLLM)/.vllm:
	@$(MAKE) vllm-venv

deps-vllm: build vllm-venv ## install vLLM for a CPU in build/vllm (1 GB), and kvpipe into it
	@$(MAKE) $(VLLM)/.package

$(VLLM)/.package: $(PY_SOURCES) $(BUILD)/obj/python.list $(VLLM)/.vllm
	@rm -rf python/build
	@$(VLLM)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall ./python
	@touch $@

# Real engines on this CPU. The core of it takes about eight minutes on two
# cores; the rest as long again and more.
test-vllm: build $(VLLM)/.package ## hand-overs between real vLLM engines, the core of it
	@$(VLLM_RUN) cases -m core | $(VLLM_REPORT)

test-vllm-full: build $(VLLM)/.package ## hand-overs between real vLLM engines, all of it
	@$(VLLM_RUN) cases -m 'not soak' | $(VLLM_REPORT)

test-vllm-again: build $(VLLM)/.package ## those hand-overs that failed the last time
	@$(VLLM_RUN) cases -m 'not soak' --last-failed --last-failed-no-failures none | $(VLLM_REPORT)

test-vllm-soak: build $(VLLM)/.package ## SOAK=15 minutes of mixed load on two prefill and two decode engines
	@$(VLLM_RUN) cases -m soak --soak $(or $(SOAK),15) | $(VLLM_REPORT)

# vLLM's scheduler and interfaces without a model. FAST=fast/test_scheduler.py
# has one file alone, SEEDS=500 and SEED=n choose the runs of that.
test-vllm-fast: ## vLLM's scheduler and interfaces with our connector, without a model
ifeq ($(wildcard test/vllm/fast/test_*.py),)
	@echo 'part skipped: there is no test/vllm/fast/test_*.py'
else ifeq ($(wildcard $(VLLM)/.vllm),)
	@echo 'part skipped: vLLM is not installed (make deps-vllm)'
else
	@$(MAKE) $(VLLM)/.package
	@cd test/vllm && $(VLLM_KEEP) $(ROOT)/$(VLLM)/bin/python -m pytest -q -rs \
		-p no:cacheprovider -W ignore::DeprecationWarning $(or $(FAST),fast $(TORCH_TESTS)) | $(VLLM_REPORT)
endif

test-torch: build deps-vllm ## the Python tests that need torch, with that of vLLM's environment
	@$(MAKE) test-vllm-fast FAST='$(TORCH_TESTS)'

# vLLM's own tests, and the interfaces of its neighbours, for the tests that
# compare with them.
vllm-sources: $(VLLM)/.vllm ## vLLM's source distribution in build/vllm-src (45 MB), for its own tests
	@$(ROOT)/$(VLLM)/bin/python -B test/vllm/fast/sources.py $$($(VLLM)/bin/python -c \
		'import importlib.metadata; print(importlib.metadata.version("vllm").partition("+")[0])')

# Benchmarks (bench/vllm). NIXL is installed beside vLLM's environment, which tests keep as it is.
VLLM_NIXL    := $(VLLM)-nixl
NIXL_VERSION := 1.5.1
VLLM_BENCH    = $(VLLM)/bin/python -B bench/vllm

.PHONY: bench-vllm bench-serving trace-vllm

$(VLLM_NIXL)/.$(NIXL_VERSION): $(VLLM)/.vllm
	@rm -rf $(VLLM_NIXL)
	@$(VLLM)/bin/pip install -q --disable-pip-version-check --no-deps --target $(VLLM_NIXL) nixl==$(NIXL_VERSION) nixl-cu13==$(NIXL_VERSION)
	@touch $@

bench-vllm: build $(VLLM)/.package $(VLLM_NIXL)/.$(NIXL_VERSION) ## kvpipe, NixlConnector and ExampleConnector in one run
	@$(VLLM_BENCH)/handover.py --nixl $(ROOT)/$(VLLM_NIXL) $(BENCHFLAGS)

bench-serving: build $(VLLM)/.package ## 1P1D by kvpipe against two vLLM instances with chunked prefill
	@$(VLLM_BENCH)/serving.py $(BENCHFLAGS)

trace-vllm: build $(VLLM)/.package ## where each millisecond of one hand-over goes
	@$(VLLM_BENCH)/trace.py $(BENCHFLAGS)
