// Package browsertest holds the tests of package loadhttp that need a browser: they
// drive the page in a headless Chromium. It is a module of its own for the sake of the
// driver.
//
// The browser is the one that PLIMSOLL_BROWSER names, or that .ci/chromium.sh finds or,
// in CI, installs. Where there is none to be had, and with -short, the tests are skipped.
//
// Screenshots go to a temporary folder, or to the one that PLIMSOLL_SCREENSHOTS names,
// which is kept.
package browsertest
