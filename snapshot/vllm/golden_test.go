package vllm

import (
	"encoding/hex"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTheVectors(t *testing.T) {
	var o Outputs
	if err := o.Decode(unhex(t, "980191dc0010a1729107c0c0c000c0c0c0c0c0c0c000c0c083b06e756d5f72756e6e696e675f7265717303b06e756d5f77616974696e675f7265717305ae6b765f63616368655f7573616765cb3fe8000000000000cb3ff8000000000000c091a172c0c0")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
	if err := o.Decode(unhex(t, "98019083b06e756d5f72756e6e696e675f7265717303b06e756d5f77616974696e675f7265717305ae6b765f63616368655f7573616765cb3fe8000000000000cb3ff8000000000000c0c0c0c0")); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
}
