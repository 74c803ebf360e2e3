# The Python side: the package in build/venv, its type check and its tests.

PY_PROJECT := $(wildcard python/pyproject.toml)
PY_SOURCES := $(shell find python -type f \( -name '*.py' -o -name '*.pyi' -o -name '*.toml' -o -name py.typed \) \
	-not -path '*/build/*' -not -path '*/tests/*' 2>/dev/null)
# The oldest and the newest Python that the package promises to run on.
PY_TARGETS := 3.9 3.13

.PHONY: test-python lint-python

$(BUILD)/obj/python.list: SOURCES = $(PY_SOURCES)

# The same command that a user runs; the flags only save downloads.
$(VENV)/.package: $(PY_SOURCES) $(BUILD)/obj/python.list $(VENV)/.ready
ifneq ($(PY_PROJECT),)
	@rm -rf python/build
	@$(VENV)/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall ./python
endif
	@touch $@

test-python: build $(VENV)/.package ## Python tests, against the installed package and real daemons
ifeq ($(wildcard python/tests/test_*.py),)
	@echo 'part skipped: there is no python/tests/test_*.py'
else
	@$(VENV)/bin/python -B -m pytest -q -rs -p no:cacheprovider python/tests | \
		sed -uE -e 's/^SKIPPED \[[0-9]+\] /skip: /' -e 's/^([0-9]+) passed(.*) in .*/part passed: \1 tests\2/'
endif

lint-python: $(VENV)/.package
ifneq ($(PY_PROJECT),)
	@$(VENV)/bin/python -B scripts/pycheck.py $(firstword $(PY_TARGETS)) python examples bench scripts test packaging
	@for target in $(PY_TARGETS); do \
		$(VENV)/bin/mypy --config-file python/pyproject.toml --python-version $$target \
			--cache-dir $(BUILD)/test/mypy python/kvpipe; \
	done
endif
