// Package node runs the peers that are written for Node.
//
//	app := node.App{Name: "graphile", Files: files, Script: "worker.mjs"}
//	p, err := app.Start(ctx, url, options)
//	…
//	err = p.Stop(ctx)
//
// `npm ci` installs the packages of an app from its package-lock.json into the user's cache
// directory, once for each lock file. If the installed Node is too old, one from npm is
// installed in the same way. Where npm is missing or cannot reach its registry, the error is
// [harness.ErrUnavailable].
//
// An app's script is a module that follows the text of host.mjs. It receives its config as
// the first line of standard input and works until the input ends, which also happens when
// this program dies. On standard output it writes one JSON value per line:
//
//	[kind, task, stage]       an observation, now
//	{"ready": true}           it is notified of new tasks
//	{"reply": n, "error": s}  the n-th request is done
//	{"failure": s}            an error occurred
//
// An observation has the time at which its line arrives. A pipe takes some 50 µs on an idle
// machine; this counts against the peer for the last stage only.
package node
