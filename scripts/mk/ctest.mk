# The C tests: each capi/tests/test_*.c becomes a program for each sanitizer,
# linked with a library and with helpers (the other sources beside it) that are
# built the same way. A test sees the library's internal headers as well.

C_TESTS   := $(wildcard capi/tests/test_*.c)
C_HELPERS := $(filter-out $(C_TESTS),$(wildcard capi/tests/*.c))

SANITIZERS := asan tsan
asan_flags := -fsanitize=address,undefined -fno-sanitize-recover=all
# gcc says of each fence that TSan does not model it. It does not see either that
# two mappings of a memfd are one memory, so of races in tests that look at what
# a ring carries; scripts/ctest.py leaves these out.
tsan_flags := -fsanitize=thread -Wno-tsan
# TSan does not follow threads into the child of a process that has some.
tsan_except := test_fork

.PHONY: test-c

# sanitizer NAME
define sanitizer
$(1)_objects := $$(C_SOURCES:capi/%.c=$$(BUILD)/obj/$(1)/%.o) $$(C_HELPERS:capi/tests/%.c=$$(BUILD)/obj/$(1)/tests/%.o)
$(1)_tests   := $$(filter-out $$(BUILD)/test/$(1)/$$($(1)_except),$$(C_TESTS:capi/tests/%.c=$$(BUILD)/test/$(1)/%))

$$(BUILD)/obj/$(1)/%.o: capi/%.c scripts/mk/ctest.mk
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$$(CC) $$(KVPIPE_CFLAGS) -O1 -fno-omit-frame-pointer $$($(1)_flags) -c $$< -o $$@

$$(BUILD)/test/$(1)/lib.a: $$($(1)_objects) $$(BUILD)/obj/c.list
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR)
	$$(Q)$$(AR) rcsD $$@ $$($(1)_objects)

$$(BUILD)/test/$(1)/%: capi/tests/%.c $$(BUILD)/test/$(1)/lib.a $$(C_HEADERS)
	@mkdir -p $$(@D)
	$$(call say,CC)
	$$(Q)$$(CC) $$(CSTD) $$(CWARN) -O1 -g -fno-omit-frame-pointer $$($(1)_flags) \
		-Iinclude -Icapi -Icapi/tests $$< -o $$@ $$(BUILD)/test/$(1)/lib.a -pthread

.PHONY: $(1)
$(1): $$(if $$(C_SOURCES),$$($(1)_tests))
	@scripts/ctest.py $$^

-include $$($(1)_objects:.o=.d)
endef
$(foreach name,$(SANITIZERS),$(eval $(call sanitizer,$(name))))

ifeq ($(and $(C_SOURCES),$(C_TESTS)),)
test-c:
	@echo 'part skipped: there is no capi/tests/test_*.c'
else
test-c: build $(SANITIZERS) ## C tests, library and tests under ASan with UBSan, then under TSan
endif
