// Package root has engines in a root of their own, as containers have: a small Debian, made by mmdebstrap, in which nothing of the host
// is but the directory of the daemon's socket (test/rigs/root.sh).
package root
