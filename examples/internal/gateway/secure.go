package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// TLS says how to speak to engines with an https URL. Nothing of it set: as the system
// does.
type TLS struct {
	CAFile     string `json:"ca_file"`     // whose certificates to trust, in PEM
	CertFile   string `json:"cert_file"`   // the certificate to show, in PEM
	KeyFile    string `json:"key_file"`    // and its key
	ServerName string `json:"server_name"` // whose name to expect in theirs, where that is not the host of the URL
}

// load returns nil where nothing is set.
func (t TLS) load() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in it", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Curve encrypts the load sockets of all engines, by ZeroMQ's CURVE, and has each prove
// who it is. Keys are 40 characters of Z85.
type Curve struct {
	ServerKey  string            `json:"server_key"`  // the public key of the engines
	ServerKeys map[string]string `json:"server_keys"` // of those that have another, by endpoint, such as tcp://10.0.0.1:5559

	// The pair of this gateway, for engines that take certain clients only.
	PublicKey     string `json:"public_key"`
	SecretKeyFile string `json:"secret_key_file"`
}

// load returns nil where there is no c.
func (c *Curve) load() (*zmqsub.Curve, error) {
	if c == nil {
		return nil, nil
	}
	if c.ServerKey == "" && len(c.ServerKeys) == 0 {
		return nil, errors.New("want server_key or server_keys")
	}
	curve := &zmqsub.Curve{
		ServerKey: c.ServerKey, PublicKey: c.PublicKey,
		ServerKeyOf: func(endpoint string) string { return c.ServerKeys[endpoint] },
	}
	if c.SecretKeyFile != "" {
		key, err := os.ReadFile(c.SecretKeyFile)
		if err != nil {
			return nil, err
		}
		curve.SecretKey = strings.TrimSpace(string(key))
	}
	return curve, nil
}
