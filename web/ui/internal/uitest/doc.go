// Package uitest fills a database with what a dashboard has to show, the same each
// time, for the tests of package ui: running, waiting, retrying, dead, cancelled,
// replaced and published videos, and the workers.
package uitest
