# Tools. Each is installed once and kept under build/, which `make clean` leaves.

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
PROTOC_GEN_GO    := $(TOOLS)/protoc-gen-go

# With a purpose behind it; ARCHES before it for packages.
DEPS = PYTHON='$(PYTHON)' GO='$(GO)' CC='$(CC)' scripts/deps.sh

.PHONY: deps build-deps system-deps network-deps root-deps

deps: system-deps $(VENV)/.ready $(GOLANGCI) ## install what is missing: apt packages, linter, Python venv
	@$(GO) mod download
	@echo 'make deps: all is there'

system-deps: purpose := test
build-deps: purpose := build
network-deps: purpose := network
root-deps: purpose := root
system-deps build-deps network-deps root-deps:
	@$(DEPS) $(purpose)

# Order-only: what apt brings has to be there first, but is never "newer".
$(VENV)/.ready: scripts/requirements.txt | build-deps
	@echo 'make deps: Python environment in $(VENV) (numpy, ml_dtypes, pytest, mypy from PyPI)'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(VENV)/bin/pip install -q --disable-pip-version-check -r $< </dev/null
	@touch $@

$(GOLANGCI):
	@echo 'make deps: golangci-lint $(GOLANGCI_VERSION) in $(TOOLS) (compiles for two minutes, once)'
	@mkdir -p $(TOOLS)
	@GOBIN='$(ROOT)/$(TOOLS)' $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) \
		>$(TOOLS)/install.log 2>&1 || { cat $(TOOLS)/install.log; exit 1; }
	@mv $(TOOLS)/golangci-lint $@
