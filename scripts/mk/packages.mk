# What is installed: deb, rpm, and what goes into them. Everything lies in
# build/packages, and is the same for the same commit, wherever it is built.

NFPM_VERSION := v2.43.0
NFPM         := $(TOOLS)/nfpm
ARCHES       ?= amd64 arm64
PKG          := $(BUILD)/packages
PKG_TO       ?= $(PKG)

HOST_ARCH := $(shell $(GO) env GOHOSTARCH)
triple_amd64 := x86_64-linux-gnu
triple_arm64 := aarch64-linux-gnu
# tool ARCH NAME: a program of the toolchain for it
tool = $(if $(filter $(1),$(HOST_ARCH)),,$(triple_$(1))-)$(2)

# Paths of this machine stay out; what Debian's own builds harden is hardened.
PKG_CFLAGS  := -O2 -g -ffile-prefix-map=$(ROOT)=. -D_FORTIFY_SOURCE=2 -fstack-protector-strong -Wformat -Wformat-security
PKG_LDFLAGS := -Wl,--build-id=sha1
PKG_COMMANDS := kvpiped kvpipectl

.PHONY: packages packages-again packages-rig packages-rig-deps debs rpms wheels sdist sbom cross-deps packages-deps packages-compile packages-doc man test-packages

cross-deps: purpose := cross
packages-deps: purpose := packages
packages-rig-deps: purpose := packages-rig
cross-deps packages-deps packages-rig-deps:
	@ARCHES='$(ARCHES)' $(DEPS) $(purpose)

$(NFPM)-$(NFPM_VERSION):
	@echo 'make deps: nfpm $(NFPM_VERSION) in $(TOOLS)'
	@mkdir -p $(TOOLS)
	@GOBIN='$(ROOT)/$(TOOLS)' $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	@touch $@

# What is compiled: with the rules of `make build`, into a folder for each architecture.
packages-compile: cross-deps
	@$(foreach arch,$(ARCHES),$(MAKE) BUILD=$(PKG)/$(arch) CC=$(call tool,$(arch),gcc) AR=$(call tool,$(arch),ar) \
		OBJCOPY=$(call tool,$(arch),objcopy) CFLAGS='$(PKG_CFLAGS)' LDFLAGS='$(PKG_LDFLAGS)' $(PKG)/$(arch)/lib/libkvpipe.so.0 $(PKG)/$(arch)/lib/libkvpipe.a &&) true
	@mkdir -p $(foreach arch,$(ARCHES),$(PKG)/$(arch)/bin)
	@$(foreach arch,$(ARCHES),$(foreach command,$(PKG_COMMANDS), \
		printf '  GO   %s\n' $(PKG)/$(arch)/bin/$(command) && \
		GOARCH=$(arch) CGO_ENABLED=$(if $(filter $(command),$(CGO_COMMANDS)),1,0) CC=$(call tool,$(arch),gcc) \
		$(if $(filter $(command),$(CGO_COMMANDS)),$(GOBUILD_CGO),$(GOBUILD)) -o $(PKG)/$(arch)/bin/$(command) ./cmd/$(command) && \
		packaging/licences.sh $(PKG)/$(arch)/bin/$(command) >$(PKG)/$(arch)/$(command).licences &&)) true

# What is written: the configuration, completions, man pages, documents.
packages-doc: go-build
	@packaging/doc.sh

# For who installs from this tree: where man looks for pages, by their sections.
man: build-deps go-build ## man pages in build/man: man -M build/man kvpiped
	@rm -rf $(BUILD)/man
	@eval "$$(packaging/version.sh)"; $(PYTHON) -B packaging/man/make.py $(BIN) $(BUILD)/man $(NUMBER) $$EPOCH
	@cd $(BUILD)/man && for page in *; do mkdir -p man$${page##*.} && mv $$page man$${page##*.}; done

debs rpms: %s: packages-deps packages-compile packages-doc $(NFPM)-$(NFPM_VERSION)
	@rm -f $(foreach arch,$(ARCHES),$(PKG_TO)/*_$(arch).$* $(PKG_TO)/*.$(firstword $(subst -, ,$(triple_$(arch)))).$*)
	@$(foreach arch,$(ARCHES),packaging/nfpm/make.sh $* $(arch) $(PKG_TO) &&) true

# The wheel and what it is made of.
wheels: packages-compile $(VENV)/.ready ## Python wheels, and the source distribution
	@$(foreach arch,$(ARCHES),packaging/wheel/make.sh $(arch) &&) true

sdist: $(VENV)/.ready
	@rm -f $(PKG)/kvpipe-*.tar.gz
	@packaging/wheel/make.sh sdist

# What it is all made of, and what it is to be.
sbom: packages-compile
	@eval "$$(packaging/version.sh)"; \
	$(PYTHON) -B packaging/sbom.py $$PACKAGE_VERSION $$EPOCH $$(packaging/glibc.sh $(PKG)/*/lib/libkvpipe.so.0) \
		$(foreach arch,$(sort $(ARCHES)),$(PKG_COMMANDS:%=$(PKG)/$(arch)/bin/%)) >$(PKG)/kvpipe.cdx.json

packages: ## everything that is installed: deb, rpm, wheel, sdist, SBOM, checksums
	@mkdir -p $(PKG) && cd $(PKG) && rm -f *.deb *.rpm *.whl *.tar.gz *.json SHA256SUMS
	@$(MAKE) debs rpms wheels sdist sbom ARCHES='$(ARCHES)'
	@cd $(PKG) && LC_ALL=C sha256sum *.deb *.rpm *.whl *.tar.gz *.json >SHA256SUMS
	@echo '  SHA  $(PKG)/SHA256SUMS'

packages-again: packages ## make the packages once more, elsewhere and from nothing; fails unless they are the same bytes
	@packaging/again.sh '$(ARCHES)'

debs: ## Debian packages in build/packages, ARCHES="amd64 arm64"
rpms: ## Fedora's, likewise

test-packages: ARCHES := $(HOST_ARCH)
test-packages: build wheels sdist $(VENV)/.package ## man pages, manifests and the wheel, as far as quick
	@$(VENV)/bin/python -B -m pytest -q -rs -p no:cacheprovider --ignore=test/packages/installed test/packages | \
		sed -uE -e 's/^SKIPPED \[[0-9]+\] /skip: /' -e 's/^([0-9]+) passed(.*) in .*/part passed: \1 tests\2/'

# Into roots of their own, which takes root: test/rigs/packages.sh. Meanwhile they are made again, for this architecture: from nothing, two
# take minutes. Neither needs two processors all the time.
packages-rig: packages-rig-deps packages
	@nice packaging/again.sh '$(HOST_ARCH)' & again=$$!; \
	tests=0; $(VENV)/bin/python -B -m pytest -q -rs -p no:cacheprovider test/packages/installed || tests=$$?; \
	wait $$again || tests=1; exit $$tests
