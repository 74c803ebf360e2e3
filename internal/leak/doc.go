// Package leak fails the tests of a package that leave something behind:
// goroutines, file descriptors, mappings of memfds, or child processes. A
// daemon that runs for months cannot afford to lose even one of them per
// session, and only a test that looks every time finds the path that does.
//
//	func TestMain(m *testing.M) { leak.Main(m) }
package leak
