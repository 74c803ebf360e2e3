// Package guest holds the daemon to what it promises under a real systemd: installed from its packages, restarted, killed, upgraded and
// purged while engines run, and shown RDMA devices of soft-RoCE. Its test runs as root in a guest of its own (make test-systemd): boot.sh
// boots this machine's files under Debian's kernel in QEMU, with init as the first process.
package guest
