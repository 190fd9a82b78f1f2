// Package snapshot reads and writes the load messages of SGLang engines.
package snapshot
