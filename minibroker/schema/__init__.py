"""The language in which every format of the house is declared once: wire messages, records, indexes, checkpoints.

types.py    what a declaration is made of: `Struct`, `Message`, `since`, the wire types
plan.py     a declaration as one version sees it: resolved fields in wire order
compile.py  plan -> source of a decoder or encoder, made at first use
walk.py     plan -> every field of some bytes with its place, and the exact error of broken bytes

A leaf: knows errors.py and nothing else of the house.
"""
