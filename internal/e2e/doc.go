// Package e2e holds only tests. They build the program and use it as a user or a script
// does, on real video; they import no package of the product.
//
// Its module has the libraries that only tests use, so that the product's go.mod lists what
// the product is made of: PromQL's parser for docs/monitoring, parsers of HLS and JSON Schema
// for package formattest, the reference library of Standard Webhooks, and testscript.
package e2e
