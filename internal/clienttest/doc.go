// Package clienttest generates clients of the HTTP API from its description, in
// TypeScript and in Go, and uses them against a server: a description that only a
// validator can read is of no use to those who write programs.
package clienttest
