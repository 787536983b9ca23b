"""The language in which every format of the house is declared once: wire messages, records, indexes, checkpoints.

types.py    what a declaration is made of: `since`, the wire types
message.py  `Struct`, `Message`: values, read and written
plan.py     a declaration as one version sees it: resolved fields in wire order
compile.py  plan -> a decoder, an encoder, a constructor: made at first use
            decoding.py, encoding.py write their statements, source.py makes a function of them
varint.py   numbers of variable length, and the tagged sections made of them
walk.py     plan -> every field of some bytes with its place, and the exact error of broken bytes
comments.py what the source says about a field

A leaf: knows errors.py and nothing else of the house.
"""
