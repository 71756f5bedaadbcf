//! An image as text, as the kept ones are: its size, then sixteen bytes a line with their offset, lines of zeroes left out.

#![allow(dead_code)] // Who only reads images writes none.

use std::fmt::Write;

pub(crate) fn to_text(bytes: &[u8]) -> String {
    let mut text = format!("size {}\n", bytes.len());
    for (number, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            write!(text, "{:06x} ", number * 16).unwrap();
            line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

pub(crate) fn from_text(text: &str) -> Vec<u8> {
    let (size, lines) = text.split_once('\n').unwrap();
    let mut bytes = vec![0; size.strip_prefix("size ").unwrap().parse().unwrap()];
    for line in lines.lines() {
        let (at, hex) = line.split_once(' ').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (number, pair) in hex.as_bytes().chunks(2).enumerate() {
            bytes[at + number] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        }
    }
    bytes
}
