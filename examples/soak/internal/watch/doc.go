// Package watch is the observer of a soak. It holds what a table makes of its workers
// against what really happens to them, all the time.
//
// # What a table may not know yet
//
// A worker is trusted on a picture: one report of each rank that it advertised. The
// picture may be as old as the table's window, and a report may have been on its way
// before that. So where a rank last published at s, no picture with it may be trusted
// after
//
//	s + Window + Way
//
// Window is the table's own promise, and exact. Way is what a report takes from the
// call that publishes it to the moment that the subscriber stamps it: ZeroMQ and the
// loopback, the subscriber's pace of some milliseconds, up to 100 ms that it holds a
// reading back while a flood goes on, and the scheduling of all of them on a machine
// that is busy with sixty engines. How long that keeps a thread waiting is measured
// (see [Stalls]), and added for each of the four that a report may go through.
//
// An engine that comes back with more ranks on the same ports looks complete to whoever
// listens to the ports that it had before. The table cannot know better until the
// engine has been asked again. That is done when the numbers of a rank's messages
// begin anew or it has been silent, at once if the engine was not asked just before, and
// otherwise after a pause of at most a window and a tenth. So a picture without all ranks
// of a life may be trusted until
//
//	birth + 1.1 Window + Reconnect + Way
//
// where Reconnect is how long the subscriber takes to connect to the new sockets. All
// of the old life's reports are stale by then, too.
//
// The list of workers is looked at every two seconds, and not while it is being
// written. List is that and some scheduling.
//
// These are all the tolerances there are. What a report says has none: each that a
// table shows was published by that rank of that engine, with these numbers, or the
// table has believed garbage.
package watch
