// Package e2e holds only tests. They build the program and use it as a user or a script
// does, on real video; they import no package of the product.
package e2e
