// Package e2e holds nothing but tests that know Cuelight only from outside:
// they build the program and use it as a user or a script does, on real video.
package e2e
