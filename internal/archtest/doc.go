// Package archtest holds the tests of what may import what.
package archtest
