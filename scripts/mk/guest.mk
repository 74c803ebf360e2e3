# A guest of QEMU in which systemd is the first process; see test/guest.

GUEST := $(BUILD)/guest
# The next version, for upgrades: the same tree, which speaks protocols one higher as well.
NEXT_LDFLAGS := $(foreach set,version=next rings=1-2 peers=1-2,-X github.com/kvpipe/kvpipe/internal/version.$(set))

.PHONY: test-systemd guest-deps guest-packages

guest-deps:
	@ARCHES=amd64 $(DEPS) packages
	@$(DEPS) guest

# guest_packages FOLDER VERSION FLAGS: the packages of a node, in a folder of the guest's own. What follows the inner make runs under make -n, too,
# where there may be no such folder.
define guest_packages
	@rm -rf $(GUEST)/packages/$(1) && mkdir -p $(GUEST)/packages/$(1)
	+@PACKAGE_VERSION=$(2) $(MAKE) debs rpms ARCHES=amd64 PKG_TO=$(GUEST)/packages/$(1) $(3)
	@rm -f $(addprefix $(GUEST)/packages/$(1)/,*-dbgsym_* *-debuginfo-* libkvpipe-dev*)
endef

guest-packages: build guest-deps
	$(call guest_packages,next,2.0.0,GO_SET='$(NEXT_LDFLAGS)')
	$(call guest_packages,now,1.0.0)

test-systemd: build guest-packages ## install, restart, kill, upgrade and purge under a real systemd, in a guest of QEMU
	@test/guest/kernel.sh
	@CGO_ENABLED=0 $(GO) test -c -o $(GUEST)/guest.test ./test/guest
	@printf '#!/bin/sh\ncd /\n%s -tree=%s -test.v -test.timeout=0\necho "guest: ended with $$?"\n' \
		$(ROOT)/$(GUEST)/guest.test $(ROOT) >$(GUEST)/run && chmod 755 $(GUEST)/run
	@test/guest/boot.sh $(ROOT)/$(GUEST)/run
