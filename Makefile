# kvpipe's front door: `make help` lists what there is.
#
# The parts live in scripts/mk; everything that is made lies under build/.

SHELL         := /bin/bash
.SHELLFLAGS   := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:

ROOT  := $(CURDIR)
BUILD := build
BIN   := $(BUILD)/bin
LIB   := $(BUILD)/lib
TOOLS := $(BUILD)/tools
VENV  := $(BUILD)/venv

GO     ?= go
CC     := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
AR     := $(if $(filter default undefined,$(origin AR)),ar,$(AR))
OBJCOPY ?= objcopy
PYTHON ?= python3

# The number that libkvpipe.pc and package metadata carry, and the string that
# `kvpiped --version` prints.
NUMBER  := $(shell cat VERSION)
VERSION ?= $(shell scripts/version.sh)

# What tests and examples need to find this build instead of an installed one, and what has come with go beside it.
export KVPIPE_BIN     := $(ROOT)/$(BIN)
export KVPIPE_LIBRARY := $(ROOT)/$(LIB)/libkvpipe.so.0
export PATH           := $(ROOT)/$(BIN):$(if $(findstring /,$(GO)),$(abspath $(dir $(GO))):)$(PATH)
# The header of NVML calls half of its own functions deprecated, at every build.
export CGO_CFLAGS     ?= -O2 -g -Wno-deprecated-declarations
# The same for programs, tests and the linter, so that go compiles a package once for all of them, beside what the user says, here or by
# `go env -w`. Paths of this machine stay out; names of hosts and users are looked up by Go's own code, whether or not there is a C half.
GO_FLAGS := -buildvcs=false -trimpath -tags=netgo,osusergo
override GOFLAGS := $(or $(GOFLAGS),$(shell $(GO) env GOFLAGS 2>/dev/null))
ifeq ($(findstring $(GO_FLAGS),$(GOFLAGS)),)
override GOFLAGS := $(strip $(GOFLAGS) $(GO_FLAGS))
endif
export GOFLAGS

# Names of sources, written when they change: what was also made of one that is gone is made again.
$(BUILD)/obj/%.list: always
	@mkdir -p $(@D)
	@cmp -s $@ - <<<'$(sort $(SOURCES))' || echo '$(sort $(SOURCES))' >$@

# One short line for each command; make V=1 shows them whole.
Q   := $(if $(V),,@)
say  = $(if $(V),@:,@printf '  %-4s %s\n' $(1) $@)

include scripts/mk/deps.mk
include scripts/mk/go.mk
include scripts/mk/c.mk
include scripts/mk/ctest.mk
include scripts/mk/python.mk
include scripts/mk/lint.mk
include scripts/mk/packages.mk
include scripts/mk/test.mk
include scripts/mk/guest.mk
include test/vllm/vllm.mk

.PHONY: help all build demo bench clean distclean

help: ## list the targets (default)
	@echo 'usage: make TARGET [VAR=value]'
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

all: build

build: go-build c-build ## binaries to build/bin, libkvpipe to build/lib
	@scripts/ldd-check.sh $(BIN) $(LIB)

# What is missing comes first: nothing is compiled without it.
demo: build-deps build $(VENV)/.package ## hand-overs within a node and between two, with deaths and restarts, verified and measured
	@$(VENV)/bin/python examples/demo/demo.py $(DEMOFLAGS)

bench: build-deps build $(VENV)/.package ## measure against memcpy, plain TCP and eventfd in one run
	@$(BIN)/kvpipe-bench $(BENCHFLAGS)

clean: ## remove what was built, keep tools and the Python environment
	rm -rf $(BIN) $(LIB) $(BUILD)/obj $(BUILD)/man $(BUILD)/test $(VENV)/.package python/build

distclean: clean ## remove build/ altogether
	rm -rf $(BUILD)
