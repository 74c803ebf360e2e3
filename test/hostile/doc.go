// Package hostile owns the tests of a daemon that is attacked, by clients and by peers, with and without a certificate, while it
// serves honest engines.
package hostile
