// Package browser has the dashboard used by a real browser, over data that is the
// same each time and an engine that the test plays: see dashboard.mjs, and package
// browsertest for what it takes. Pictures of every screen are made, in both themes
// and at two widths. The same against a daemon that does the work is in package e2e.
package browser
