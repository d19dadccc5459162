// Package uitest fills a database for the tests of the dashboard: [Seed] adds workers and
// running, ready, retrying, dead, cancelled, replaced and published videos. The data is
// the same each time. [NewSite] serves a dashboard over it, for a browser. Package uitest
// runs no stage.
package uitest
