// Package clienttest generates clients of the HTTP API from its OpenAPI description, in
// TypeScript and in Go, and uses them against a server. A description that only passes a
// validator may still be useless for generated clients.
package clienttest
