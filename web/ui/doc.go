// Package ui is the dashboard: pages, rendered on the server, that update themselves
// while they are open.
//
//	dashboard, err := ui.New(ui.Options{Store: ui.NewReader(st), Actions: actions, Subscribe: subscribe})
//	mux.Handle("/", dashboard)   // behind a handler that authenticates
//	err = dashboard.Run(ctx)     // next to the server: updates open pages
//
// The pages are the board (/), a video (/videos/{id}), workers (/workers), dead tasks
// (/dead) and latency (/latency), and, without updates, profiles (/profiles) and
// deleted videos (/deleted). /login is the sign-in form. Everything works without
// JavaScript: actions are posted forms that end in a redirect, and each confirmation
// is a page.
//
// # Guarantees
//
//   - It sets a content security policy that allows no inline script or style and no
//     request to another host.
//   - An open page has one stream (/live). The stream sends the fragments of HTML that
//     changed, at most four times a second. They are swapped in without changing the
//     focus, the scroll position or an opened detail.
//   - Pages with the same view share its reads and its rendering: 500 open boards cost
//     the database as much as one. Slow views are read less often and separately from
//     quick ones. Both groups use a connection for at most half of the time. One viewer
//     can follow 64 different views; further pages do not update.
//   - A browser reconnects a broken stream, and the stream starts with what changed in
//     the meantime. The server keeps nothing for a disconnected browser.
//   - A read takes at most five seconds. If a view cannot be read, or not in time, its
//     open pages say so and show the time of their content. Options.OnError gets the
//     error; the page shows no details of it.
//
// # Limits
//
// It does not authenticate (Options.Viewer names the viewer), change tasks or write the
// audit log (Options.Actions does), receive uploads (Options.Uploads is their address),
// serve published files or the player (Options.Playback returns addresses), or log.
package ui
