// Package clients has the clients that people use talk to the example gateway: the
// official OpenAI client and a public load generator. With the build tag clients,
// its test runs them against a gateway and simulated engines on loopback (make
// clients, which downloads them).
//
// PLIMSOLL_OPENAI and PLIMSOLL_AIPERF are Python's virtual environments that have the
// one and the other. What is not there is left out.
package clients
