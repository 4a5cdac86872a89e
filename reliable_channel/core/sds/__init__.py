"""Scalable data sync: what makes a channel reliable, without segmentation, encryption or I/O.

Spec: LIP-109 (SDS).
"""
