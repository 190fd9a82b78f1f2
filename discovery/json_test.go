package discovery

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestMembersAndElements(t *testing.T) {
	for in, want := range map[string]map[string]string{
		`{}`:                        {},
		` { } `:                     {},
		`{"a":1}`:                   {"a": "1"},
		"{ \"a\" :\t1 ,\n\"b\": 2}": {"a": "1", "b": "2"},
		`{"a":{"a":[1,{"b":"}]"}]},"b":[],"c":{}}`:         {"a": `{"a":[1,{"b":"}]"}]}`, "b": "[]", "c": "{}"},
		`{"a":"x","a":"y"}`:                                {"a": `"y"`},
		`{"a\"b":"\\","c":"\"","":null}`:                   {`a\"b`: `"\\"`, "c": `"\""`, "": "null"},
		`{"a":true,"b":false,"c":null,"d":-1.5e3,"e":[1]}`: {"a": "true", "b": "false", "c": "null", "d": "-1.5e3", "e": "[1]"},
		`[1,2]`: {}, `7`: {}, `"{}"`: {}, `null`: {}, ``: {},
	} {
		got := make(map[string]string)
		for key, value := range members(json.RawMessage(in)) {
			got[string(key)] = string(value)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string][]string{
		`[]`: nil, `[ ]`: nil, `{}`: nil, `7`: nil, ``: nil,
		` [ 1 , "a,]" , [2 , 3] ,{"b" : [4]}, null ] `: {"1", `"a,]"`, "[2 , 3]", `{"b" : [4]}`, "null"},
	} {
		var got []string
		for value := range elements(json.RawMessage(in)) {
			got = append(got, string(value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestMembersStopWhenTold(t *testing.T) {
	for range members(json.RawMessage(`{"a":1,"b":2}`)) {
		break
	}
	for range elements(json.RawMessage(`[1,2]`)) {
		break
	}
}

// FuzzMembers compares with encoding/json, which reads keys that are escaped or no
// text in its own way.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"]}",{"c":null}]},"d":-1.5e3,"a": true , "\\":"\""}`))
	f.Add([]byte(`{"a":{"b":[1,"]}",{"c":null}]},"d":-1.5e3,"a": true , "":""}`))
	f.Add([]byte(`[1,"a",[2],{"b":3},null,false]`))
	f.Add([]byte(" {\r\n\"a\" : [ ] }\t"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if !json.Valid(in) {
			return
		}
		got := make(map[string]json.RawMessage)
		for key, value := range members(in) {
			got[string(key)] = value
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(in, &object) != nil {
			object = nil
		}
		if utf8.Valid(in) && !bytes.ContainsRune(in, '\\') && !maps.EqualFunc(got, object, slices.Equal) {
			t.Errorf("members %q, want %q", got, object)
		}

		var array, elems []json.RawMessage
		if json.Unmarshal(in, &array) != nil {
			array = nil
		}
		for value := range elements(in) {
			elems = append(elems, value)
		}
		if !slices.EqualFunc(elems, array, slices.Equal) {
			t.Errorf("elements %q, want %q", elems, array)
		}
	})
}
