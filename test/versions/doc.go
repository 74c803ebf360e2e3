// Package versions runs daemons and engines of which one is a version ahead of the other: the same tree, built once as it is and once to
// speak protocols one higher as well.
package versions
