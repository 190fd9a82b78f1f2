//go:build linux && cgo

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// child is this program, started to be one side of a run. It is asked things in
// lines on its stdin and answers each with one JSON value. It ends with its stdin,
// and so with us.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// answer is what a child says: something, or what went wrong.
type answer struct {
	Error string          `json:",omitempty"`
	Value json.RawMessage `json:",omitempty"`
}

// startChild starts a child, which gets a first line to read, and takes its first
// answer.
func startChild(ctx context.Context, first any, args ...string) (*child, json.RawMessage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, args...)}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, nil, err
	}
	line, err := json.Marshal(first)
	var v json.RawMessage
	if err == nil {
		c.in.Write(append(line, '\n')) // if that fails, there is no answer
		v, err = c.answer()
	}
	if err != nil {
		c.end()
		return nil, nil, err
	}
	return c, v, nil
}

// childEnv is set for children, so that a test binary knows that it is one.
const childEnv = "PLIMSOLL_SCALE_CHILD"

func (c *child) answer() (json.RawMessage, error) {
	var a answer
	if err := c.out.Decode(&a); err != nil {
		return nil, fmt.Errorf("%s is gone: %w", c.cmd.Args[1], err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%s: %s", c.cmd.Args[1], a.Error)
	}
	return a.Value, nil
}

// ask has the child do something and puts what it says into v, unless that is nil.
func (c *child) ask(what string, v any) error {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return fmt.Errorf("%s is gone: %w", c.cmd.Args[1], err)
	}
	raw, err := c.answer()
	if err != nil || v == nil {
		return err
	}
	return decode(raw, v)
}

// end ends the child and waits for it.
func (c *child) end() {
	c.in.Close()
	c.cmd.Wait()
}

// serve is the other side: it says first, and then does what it is asked until
// its stdin is closed.
func serve(in io.Reader, out io.Writer, first any, do map[string]func() (any, error)) error {
	w := json.NewEncoder(out)
	say := func(v any, err error) error {
		if err != nil {
			return w.Encode(answer{Error: err.Error()})
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return w.Encode(answer{Value: raw})
	}
	if err := say(first, nil); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		f := do[lines.Text()]
		if f == nil {
			return fmt.Errorf("asked for %q", lines.Text())
		}
		if err := say(f()); err != nil {
			return err
		}
	}
	return nil
}

// modes are what a child can be.
var modes = map[string]func(args []string, in io.Reader, out io.Writer) error{
	publisherMode: publish,
	listenerMode:  listen,
}

func beChild(mode func([]string, io.Reader, io.Writer) error, args []string, in io.Reader, out io.Writer) int {
	if err := mode(args, in, out); err != nil {
		json.NewEncoder(out).Encode(answer{Error: err.Error()})
		return 1
	}
	return 0
}

func decode(raw json.RawMessage, v any) error { return json.Unmarshal(raw, v) }

// readLine reads one line of JSON and returns the rest.
func readLine(in io.Reader, v any) (io.Reader, error) {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(line, v)
}
