# The Go side: commands, the benchmark program, generated code.

# Commands with a C half (kvpiped: NVML); all others are static.
CGO_COMMANDS := kvpiped kvpipe-nccl

COMMANDS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))
STATIC   := $(filter-out $(CGO_COMMANDS),$(COMMANDS))
# GO_SET: more linker flags, of tests that build another version of this tree.
GO_LDFLAGS := -X github.com/kvpipe/kvpipe/internal/version.version=$(VERSION)
# NVML's functions are bound when they are first called, since the library may not be there: no linker may be told to bind them at the start.
GO_LDFLAGS += -extldflags=-Wl,-z,lazy $(GO_SET)
GOBUILD  := $(GO) build -ldflags '$(GO_LDFLAGS)'
# Programs that are loaded anyway may as well be loaded at an address nobody knows.
GOBUILD_CGO := $(GOBUILD) -buildmode=pie

.PHONY: go-build generate

go-build:
	@mkdir -p $(BIN)
ifneq ($(STATIC),)
	@printf '  GO   %s\n' '$(STATIC:%=$(BIN)/%)'
	$(Q)CGO_ENABLED=0 $(GOBUILD) -o $(BIN)/ $(STATIC:%=./cmd/%)
endif
ifneq ($(filter $(CGO_COMMANDS),$(COMMANDS)),)
	@printf '  GO   %s\n' '$(patsubst %,$(BIN)/%,$(filter $(CGO_COMMANDS),$(COMMANDS)))'
	$(Q)CGO_ENABLED=1 $(GOBUILD_CGO) -o $(BIN)/ $(patsubst %,./cmd/%,$(filter $(CGO_COMMANDS),$(COMMANDS)))
endif
ifneq ($(wildcard bench/*.go),)
	$(Q)CGO_ENABLED=0 $(GOBUILD) -o $(BIN)/kvpipe-bench ./bench
endif
# The plain programs that benchmark and demo measure against.
ifneq ($(wildcard bench/ref/Makefile),)
	@$(MAKE) -s -C bench/ref BIN=../../$(BIN) OBJ=../../$(BUILD)/obj/ref CC='$(CC)' GO='$(GO)'
endif

# Generated code is committed; only who changes a .proto file runs this.
generate: ## regenerate *.pb.go from *.proto
	@scripts/deps.sh generate
	@GOBIN='$(ROOT)/$(TOOLS)' $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$$($(GO) list -m -f '{{.Version}}' google.golang.org/protobuf)
	@find . -name '*.proto' -not -path './$(BUILD)/*' -printf '%h\n' | sort -u | while read -r dir; do \
		protoc --plugin=$(PROTOC_GEN_GO) --proto_path="$$dir" --go_out="$$dir" --go_opt=paths=source_relative "$$dir"/*.proto || exit 1; \
	done
