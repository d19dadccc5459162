// Package node runs the peers that are written for Node.
//
//	app := node.App{Name: "graphile", Files: files, Script: "worker.mjs"}
//	p, err := app.Start(ctx, config, options, &trouble)
//	…
//	err = p.Stop(ctx)
//
// What an app needs is installed by `npm ci` from its package-lock.json, into
// the user's cache directory and once for each lock file. A Node that is too old
// for the peers is passed over for one from npm, which the same happens to.
// Where npm is missing or cannot reach its registry, the error is
// [harness.ErrUnavailable].
//
// An app's script is a module that finds the functions of host.mjs before its
// own lines. It is given its config as the first line of its standard input and
// works until that ends, which it also does when this program dies. On its
// standard output it tells, a JSON value per line:
//
//	[what, task, stage]       something happened, now
//	{"ready": true}           it hears of new tasks
//	{"reply": n, "error": s}  the n-th request is done
//	{"trouble": s}            something went wrong
//
// A moment has the time at which its line arrives. A pipe takes some 50 µs on an
// idle machine, which the peer is charged with for the last stage only.
package node
