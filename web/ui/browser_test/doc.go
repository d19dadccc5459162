// Package browser tests the dashboard in a real browser, over seeded data: see
// dashboard.mjs, and package browsertest for the requirements. No stage runs; the test
// reports the outcomes itself. It takes pictures of every page, in both themes and at two
// widths. Package e2e tests the dashboard of a daemon that does the work.
package browser
