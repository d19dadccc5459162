// Package browser has the dashboard used by a real browser: Chromium, driven by
// a script that playwright-core runs in Node.
//
// What the script needs is installed by `npm ci` from package-lock.json into the
// user's cache directory, once per lock file. Without Chromium, Node or npm the test
// is skipped, unless $CI is set. Pictures of every screen go to
// $CUELIGHT_TEST_PICTURES, in both themes and at two widths; without it, pictures
// are kept in the test's directory and those of a failure are named in its log.
package browser
