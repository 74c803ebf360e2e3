# Style and static checks: few and meaningful ones, all of them must pass.

# Where Go code lies; build/ and everything that begins with a dot is left out.
GO_FILES  = $(shell find . -name '*.go' -not -path './$(BUILD)/*' -not -path './.*/*')
C_TIDY    = $(wildcard capi/*.c examples/c/*.c)
# How far clang's analyzer follows the paths of one function: as far as its own shallow mode does, a third of the default, in a quarter of the time.
TIDY_NODES ?= 75000
TIDY_ARGS  = $(foreach arg,-Xclang -analyzer-config -Xclang max-nodes=$(TIDY_NODES),--extra-arg=$(arg))
C_FORMAT  = $(wildcard capi/*.c capi/tests/*.c examples/c/*.c)

.PHONY: lint lint-go lint-c fmt arm64

lint: lint-go lint-c lint-python ## gofmt, golangci-lint with go vet's checks, clang-tidy, mypy

# All run, so that one look shows everything. Of vet the linter has what reads Go; what reads assembly is go's alone.
lint-go: $(GOLANGCI)
	@rc=0; unformatted=$$(gofmt -l $(GO_FILES)) || rc=1; \
	[ -z "$$unformatted" ] || { printf 'not gofmt clean (make fmt):\n%s\n' "$$unformatted"; rc=1; }; \
	$(GO) vet $$($(GO) list -f '{{if .SFiles}}{{.ImportPath}}{{end}}' ./...) || rc=1; \
	$(GOLANGCI) run --allow-parallel-runners --timeout 10m || rc=1; \
	exit $$rc

# Headers stand alone, in strict C11 and without our own macros; *_assert.h are parts of others.
lint-c: | system-deps
	@for header in $(filter-out %_assert.h,$(wildcard include/*.h include/*/*.h)); do \
		$(CC) -std=c11 -pedantic $(filter-out -Wmissing-prototypes,$(CWARN)) -fsyntax-only -Iinclude -x c $$header; \
	done
ifneq ($(C_TIDY),)
	@printf '%s\0' $(C_TIDY) | xargs -0 -P 2 -I{} clang-tidy --quiet --warnings-as-errors='*' $(TIDY_ARGS) {} -- \
		$(CSTD) -Iinclude -Icapi 2> >(grep -v 'warnings\? generated' >&2)
endif

fmt: | system-deps ## format Go and C sources in place
	@gofmt -w $(GO_FILES)
	@$(if $(C_FORMAT),clang-format -i $(C_FORMAT))

arm64: ## compile everything for arm64 as well
	@GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	@echo 'part passed: compiles'
