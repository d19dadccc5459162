// Package ui is the dashboard: five screens, drawn on the server, that follow
// what happens.
//
//	dashboard, err := ui.New(ui.Options{Store: st, Actions: actions, Subscribe: subscribe})
//	mux.Handle("/", dashboard)   // behind whatever says who may come in
//	err = dashboard.Run(ctx)     // beside the server: keeps open pages up to date
//
// The screens are the board (/), a video (/videos/{id}), the workers (/workers),
// dead letters (/dead) and latency (/latency); /login is the form for those who
// are not known yet. All can be read, and all that can be done be done, without
// JavaScript: actions are forms that are posted and answered with a redirect, and
// what ought to be confirmed has a page that asks.
//
// # What it promises
//
//   - It works under a policy that allows no inline script or style; it sets that
//     policy itself, and a browser fetches nothing from anywhere else.
//   - A page that is open has one stream (/live). What is sent are the pieces of
//     HTML that changed, at most four times a second, and they are put in place
//     without touching focus, scroll position or what somebody has opened.
//   - Pages that look at the same thing share its reads and its rendering: five
//     hundred open boards cost the database what one does. What is slow to read is
//     read less often and apart from the rest, and each of the two takes no more than
//     half of the time of one connection. Of one viewer, 64 different pages are
//     followed at once; more than that show what there was.
//   - A stream that breaks is begun again by the browser, and begins with what
//     changed since, whatever was missed. Nothing is kept here for those who are
//     away.
//   - Reads have five seconds. A page that cannot be read says so, and an open one
//     says since when it is stale, also where it was only not read in time. What went
//     wrong is told to Options.Trouble, as people are told no details.
//
// # What it does not do
//
// It does not decide who somebody is (Options.Viewer tells it), does not change a
// task (Options.Actions does, and writes the audit), does not take uploads (their
// address is in Options.Uploads) and does not serve what is published (its
// addresses come from Options.Playback and Options.Poster). It does not log.
package ui
