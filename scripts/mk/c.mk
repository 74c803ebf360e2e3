# The C side: libkvpipe, shared and static, and the programs that use it. Its
# tests are in ctest.mk.

CSTD   := -std=c11 -D_GNU_SOURCE
CWARN  := -Wall -Wextra -Werror -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
CFLAGS ?= -O2 -g

KVPIPE_CFLAGS := $(CSTD) $(CWARN) -fPIC -fvisibility=hidden -Iinclude -Icapi -pthread -MMD -MP

C_SOURCES  := $(wildcard capi/*.c)
C_HEADERS  := $(shell find include capi -name '*.h' 2>/dev/null)
C_EXAMPLES := $(wildcard examples/c/*.c)
# The client that kvpipe-bench drives.
C_BENCH    := $(wildcard bench/client/*.c)
# The engine of tests that need one to be killed.
C_ENGINE    := $(wildcard test/cluster/engine/*.c)
C_BENCH_SHARED := $(addprefix bench/ref/,list.c util.c serve.c)

OBJ := $(C_SOURCES:capi/%.c=$(BUILD)/obj/lib/%.o)

.PHONY: c-build abi

c-build: $(if $(C_SOURCES),$(LIB)/libkvpipe.so $(LIB)/libkvpipe.a $(LIB)/pkgconfig/kvpipe.pc \
	$(C_EXAMPLES:examples/c/%.c=$(BIN)/examples/%)) $(if $(C_BENCH),$(BIN)/bench-client) $(if $(C_ENGINE),$(BIN)/test-engine)

$(BUILD)/obj/lib/%.o: capi/%.c scripts/mk/c.mk
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(KVPIPE_CFLAGS) $(CFLAGS) -c $< -o $@

$(BUILD)/obj/c.list: SOURCES = $(C_SOURCES) $(C_HELPERS)

$(LIB)/libkvpipe.so.0: $(OBJ) capi/kvpipe.map $(BUILD)/obj/c.list
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) -shared $(CFLAGS) $(LDFLAGS) -Wl,-soname,libkvpipe.so.0 -Wl,--version-script=capi/kvpipe.map \
		-Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -o $@ $(OBJ) -pthread

$(LIB)/libkvpipe.so: $(LIB)/libkvpipe.so.0
	@ln -sf $(<F) $@

# One object, whose names are the program's to use but for those of the ABI, as with the shared library.
$(BUILD)/obj/kvpipe.o: $(OBJ) $(BUILD)/obj/c.list
	$(call say,CC)
	$(Q)$(CC) -r -nostdlib -o $@ $(OBJ)
	$(Q)$(OBJCOPY) --localize-hidden $@

$(LIB)/libkvpipe.a: $(BUILD)/obj/kvpipe.o
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcsD $@ $<

# Points into this tree; an installed package writes its own. pkg-config wants spaces escaped.
$(LIB)/pkgconfig/kvpipe.pc: export TREE = $(subst $() ,\\ ,$(ROOT))
$(LIB)/pkgconfig/kvpipe.pc: scripts/kvpipe.pc.in VERSION
	@mkdir -p $(@D)
	@sed -e "s|@libdir@|$$TREE/$(LIB)|" -e "s|@includedir@|$$TREE/include|" -e 's|@version@|$(NUMBER)|' $< >$@

$(BIN)/examples/%: examples/c/%.c $(LIB)/libkvpipe.so $(C_HEADERS)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CSTD) $(CWARN) $(CFLAGS) -Iinclude $< -o $@ -L$(LIB) -lkvpipe -Wl,-rpath,'$$ORIGIN/../../lib' -pthread

$(BIN)/bench-client: $(C_BENCH) $(C_BENCH_SHARED) $(wildcard bench/client/*.h bench/ref/*.h) $(LIB)/libkvpipe.so $(C_HEADERS)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CSTD) -Wall -Wextra -Werror $(CFLAGS) -Iinclude -Ibench/client -Ibench/ref $(C_BENCH) $(C_BENCH_SHARED) -o $@ \
		-L$(LIB) -lkvpipe -Wl,-rpath,'$$ORIGIN/../lib' -pthread

$(BIN)/test-engine: $(C_ENGINE) $(wildcard test/cluster/engine/*.h) $(LIB)/libkvpipe.so $(C_HEADERS)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CSTD) $(CWARN) $(CFLAGS) -Iinclude -Itest/cluster/engine $(C_ENGINE) -o $@ -L$(LIB) -lkvpipe -Wl,-rpath,'$$ORIGIN/../lib' -pthread

abi: c-build ## compare the library's symbols and types with capi/kvpipe.symbols and kvpipe.abi
ifeq ($(C_SOURCES),)
	@echo 'part skipped: there is no capi/*.c'
else
	@scripts/abi.sh $(LIB)/libkvpipe.so.0 capi/kvpipe.symbols
	@diff -u --label $(LIB)/libkvpipe.a <(nm --defined-only -g $(LIB)/libkvpipe.a | awk 'NF == 3 { print $$3 }' | LC_ALL=C sort) \
		<(sed 's/@.*//' capi/kvpipe.symbols)
	@scripts/abitypes.sh $(LIB)/libkvpipe.so.0 capi/kvpipe.abi
endif

-include $(OBJ:.o=.d)
